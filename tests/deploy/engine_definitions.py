"""One real chain over the models that `$ENGINE_MODELS` names, as the workers and the daemon of the engine test load it."""

import os

import dagster as dg

from assets.chains import build_chain
from assets.partitions import partitions_of
from assets.recipes import build_recipes
from orchestration.definitions import job_name
from orchestration.lost_chunks import lost_chunks
from orchestration.resources import PoolRunner, StoreRecipes


@dg.definitions
def defs() -> dg.Definitions:
    family, models = os.environ["ENGINE_FAMILY"], os.environ["ENGINE_MODELS"].split(",")
    chain = build_chain(family, models)
    job = dg.define_asset_job(job_name(family), selection=dg.AssetSelection.assets(chain))
    return dg.Definitions(
        assets=[chain, *build_recipes(family, partitions_of(family, models))],
        jobs=[job],
        sensors=[lost_chunks([chain], [job])],
        resources={"runner": PoolRunner(chain=os.environ["COUNTED_CHAIN"], workers=1, retries=0), "recipes": StoreRecipes()},
        executor=dg.in_process_executor,
    )
