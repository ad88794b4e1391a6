"""What exports are made with, as far as a snapshot keeps it: versions of the packages that matter, and digests of zooport's own code.

It is what is installed where the report is made. A snapshot is taken only when something has been exported since the last one, so an
upgrade shows from the first exports after it on.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from exporters.code_index import CodeIndex
from exporters.source import PACKAGES, RUNTIMES, versions

# of a digest; 48 bits tell a few hundred of them apart
_CHARACTERS = 12


class Software(BaseModel):
    """Packages by name with their versions, Python among them; parts of zooport's code and its workarounds by name with a digest each.

    The parts are those of `exporters.code_index.ROOTS`: one a family of backends, how samples are built, and how results are compared.
    """

    packages: dict[str, str]
    code: dict[str, str]
    workarounds: dict[str, str]


def present(index: CodeIndex) -> Software:
    """What is installed here and now."""
    names = tuple(dict.fromkeys(name for table in (PACKAGES, RUNTIMES) for packages in table.values() for name in packages))
    return Software(
        packages={"python": platform.python_version(), **versions(names)},
        code={part: digest[:_CHARACTERS] for part, digest in index.core.items()},
        workarounds={each.name: each.fingerprint[:_CHARACTERS] for each in index.workarounds},
    )


@dataclass(frozen=True)
class Upgrade:
    """A package with its versions then and now; `absent` for one that isn't installed."""

    package: str
    before: str
    after: str


@dataclass(frozen=True)
class Upgrades:
    """What differs between two snapshots' software.

    Attributes:
        known: whether both snapshots say what theirs was (the first ones kept do not). If not, the rest is empty.
        packages: in the order of their table.
        code: parts of zooport's code that have changed, workarounds left out.
        changed, added, removed: names of workarounds.
    """

    known: bool
    packages: tuple[Upgrade, ...] = ()
    code: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """One phrase a kind of difference, the likeliest to matter first; a single one where there is none or none is known."""
        if not self.known:
            return ["not known: the snapshot compared with doesn't say what it was made with"]
        found = [f"{each.package} {each.before} -> {each.after}" for each in self.packages]
        if self.code:
            found.append(f"zooport's own code changed ({', '.join(self.code)})")
        for verb, names in (("changed", self.changed), ("new", self.added), ("gone", self.removed)):
            if names:
                found.append(f"workaround{'' if len(names) == 1 else 's'} {verb}: {', '.join(names)}")
        return found or ["nothing: the same packages and the same code of zooport"]


def upgrades(before: Software | None, after: Software | None) -> Upgrades:
    """The difference; a package or a part of which only one of them tells isn't compared."""
    if before is None or after is None:
        return Upgrades(known=False)
    packages = [Upgrade(name, before.packages[name], now) for name, now in after.packages.items() if name in before.packages]
    added, removed = after.workarounds.keys() - before.workarounds.keys(), before.workarounds.keys() - after.workarounds.keys()
    return Upgrades(
        known=True,
        packages=tuple(each for each in packages if each.before != each.after),
        code=_changed(before.code, after.code),
        changed=_changed(before.workarounds, after.workarounds),
        added=tuple(sorted(added)),
        removed=tuple(sorted(removed)),
    )


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(name for name, digest in after.items() if before.get(name, digest) != digest))
