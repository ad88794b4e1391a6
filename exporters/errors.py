"""What can go wrong, said once and in one shape: who, where, what, and what to do next."""

from collections.abc import Sequence


class ZooportError(Exception):
    """Base of every error that zooport raises on purpose.

    Attributes:
        next: what the reader should do about it, one sentence, or an empty string.
    """

    exit_code = 1

    def __init__(self, message: str, *, next: str = "") -> None:
        super().__init__(message)
        self.next = next

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  next: {self.next}" if self.next else message


class UsageError(ZooportError):
    """The request itself is wrong: an unknown model, an option that can't be, a folder that isn't a checkpoint."""

    exit_code = 2


class UnknownModel(UsageError):
    """No class of the zoo, no folder and no hub id has this name."""


class UnknownBackend(UsageError):
    """No backend is registered under this name."""


class MissingBackend(ZooportError):
    """The backend is known, but what it needs (a package, a device) is not on this machine."""


class CheckpointError(UsageError):
    """A checkpoint folder that can't be used: no config, no weights, damaged files."""


class MissingPackage(ZooportError):
    """A model or its inputs need a package that isn't installed: a reason to skip it, not a failure."""

    @property
    def message(self) -> str:
        return str(self.args[0])


class StoreError(ZooportError):
    """The artifact store or an output folder can't be read or written."""


class CorruptArtifact(StoreError):
    """An artifact's bytes don't have the digest that its reference names."""


class StaleWorkaround(ZooportError):
    """A registered patch names an attribute that the installed package no longer has."""


class PatchConflict(ZooportError):
    """Patches are already installed by another thread of this process."""


class SignatureMismatch(ZooportError):
    """An exported model was called with inputs that differ in kind from those it was exported with."""


class ExportError(ZooportError):
    """A stage of an export failed.

    Attributes:
        backend: dotted backend name, such as `executorch.xnnpack`.
        stage: asset name of the stage, such as `lowered_onnx`.
        model: name of the model class.
        cause_type: class name of the root exception.
        active_workarounds: names of the registered workarounds that were installed when it failed.
    """

    def __init__(
        self,
        message: str,
        *,
        backend: str,
        stage: str,
        model: str,
        cause_type: str = "",
        active_workarounds: Sequence[str] = (),
        next: str = "",
    ) -> None:
        super().__init__(message, next=next)
        self.backend = backend
        self.stage = stage
        self.model = model
        self.message = message
        self.cause_type = cause_type or type(self).__name__
        self.active_workarounds = tuple(active_workarounds)

    def __str__(self) -> str:
        lines = [f"{self.backend}, {self.stage}, {self.model}: {self.message}"]
        if self.active_workarounds:
            lines.append(f"  active workarounds: {', '.join(self.active_workarounds)}")
        if self.next:
            lines.append(f"  next: {self.next}")
        return "\n".join(lines)
