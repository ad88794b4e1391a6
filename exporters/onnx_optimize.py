"""The graph optimizer of onnxscript, with what is slow or would break the weights left out."""

import functools
from typing import Any

import onnx_ir as ir
import onnx_ir.passes.common as common
from onnxscript import rewriter
from onnxscript.optimizer import _constant_folding

# folding is for shapes and small tables; what is larger stays computed (elements, not bytes)
_FOLD_LIMIT = 1024

# Left out by name: `SlicesSplit` pairs every slice with every other (82 % of the time on a large llama, nothing gained).
_EXCLUDED_RULES = {"SlicesSplit"}

# An old bug folded `Resize` to wrong values; what is left of it costs nothing to leave to the runtime.
_NEVER_FOLDED = {"Resize"}


@functools.cache
def _rules() -> Any:
    rules = [rule for rule in rewriter._DEFAULT_REWRITE_RULES if rule.name not in _EXCLUDED_RULES]
    if len(rules) == len(rewriter._DEFAULT_REWRITE_RULES):
        raise RuntimeError(f"onnxscript's default rules no longer include {', '.join(sorted(_EXCLUDED_RULES))}: delete the exclusion")
    return rewriter.RewritePass(rules)


def _should_fold(node: ir.Node) -> bool | None:
    """False keeps a node, None leaves the decision to the folder."""
    return False if node.op_type in _NEVER_FOLDED else None


def optimize(model: ir.Model) -> None:
    """Fold, rewrite and clean up `model` in place. Weights are graph inputs here, so no pass can read or copy them."""
    passes = ir.passes.Sequential(
        common.InlinePass(),
        ir.passes.PassManager(
            [
                _constant_folding.FoldConstantsPass(
                    shape_inference=True, input_size_limit=_FOLD_LIMIT, output_size_limit=_FOLD_LIMIT, should_fold=_should_fold
                ),
                _rules(),
                common.RemoveUnusedNodesPass(),
                common.RemoveUnusedFunctionsPass(),
                common.RemoveUnusedOpsetsPass(),
            ],
            steps=2,
            early_stop=True,
        ),
        common.RemoveUnusedNodesPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )
    passes(model)
