"""Reading: whether a plain copy of the target reads prompts, while its repacked weights write. Pure: facts and costs in, a plan out.

Which kernels compute which token depends on the plan and on what is to be read, and on nothing that happens meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from localspec.calibration.calibrated import StoredCosts
from localspec.decoding.costs import PassCosts
from localspec.models.shape import ModelShape
from localspec.options import LoadOptions
from localspec.plan.fit import PlaceUse
from localspec.plan.memory import kv_bytes, predict, repacked_bytes

MARGIN = 1.08
"""How many times faster the plain copy has to read: each first prompt waits for its context."""
_LEAST_SHARE = 0.2
"""Of a model's bytes, what has to be repacked for there to be two speeds."""
_START_S = 0.05
"""What making a context takes."""
_MOVED_BYTES_S = 400e6
"""What is copied out of one context and into another in a second."""


@dataclass(frozen=True, slots=True)
class ReadingRule:
    """Which prompts the plain copy reads.

    Args:
        saved_s: seconds that it takes less for a token.
        moved_s: seconds that a token takes to be handed over.
    """

    saved_s: float
    moved_s: float

    def takes(self, depth: int, count: int) -> bool:
        """Return whether it reads `count` tokens behind `depth` evaluated ones, which have to go there and back.

        Where nothing is evaluated it reads every prompt: it is loaded first, and one prompt has one text.
        """
        if depth == 0:
            return True
        return count * self.saved_s > _START_S + (2 * depth + count) * self.moved_s


@dataclass(frozen=True, slots=True)
class PlainCopy:
    """A plain copy of the target, beside the repacked one.

    Args:
        options: how it is loaded.
        held_bytes: what it takes of the RAM, its pages included, which are the file's and can go.
        token_bytes: of what is handed over for each token.
        rule: which prompts it reads; None where that is still to be measured.
    """

    options: LoadOptions
    held_bytes: int
    token_bytes: int
    rule: ReadingRule | None = None


def plain_beside(
    shape: ModelShape | None,
    options: LoadOptions,
    uses: tuple[PlaceUse, ...],
    costs: Callable[[LoadOptions], StoredCosts | None],
    *,
    on_gpu: bool,
) -> PlainCopy | None:
    """Return the plain copy that reads prompts beside a target, with its rule where `costs` of reading say it; None where it does not pay.

    The others are those of `plain_copy`.
    """
    plain = plain_copy(shape, options, uses, on_gpu=on_gpu)
    own, other = (None, None) if plain is None else (costs(options), costs(plain.options))
    if plain is None or own is None or other is None or not (other.sure and own.sure):
        return plain
    rule = rule_of(plain, options, own.costs, other.costs)
    return None if rule is None else replace(plain, rule=rule)


def plain_copy(
    shape: ModelShape | None, options: LoadOptions, uses: tuple[PlaceUse, ...], *, on_gpu: bool
) -> PlainCopy | None:
    """Return how a plain copy would be loaded beside a target; None where it would read no faster, or there is no room for it.

    Args:
        shape: the target's; None where its header does not say.
        options: how the target is loaded.
        uses: what is planned to be taken of each place, the RAM first; empty where that is not known.
        on_gpu: whether layers may be on a GPU.
    """
    if shape is None or on_gpu or not options.repack or not uses:
        return None
    if options.loading(on_gpu=False) != "copy":
        return None
    if repacked_bytes(shape.layers) < _LEAST_SHARE * shape.weights_bytes:
        return None
    if any(layer.state_bytes for layer in shape.layers) or shape.masks > 1:
        return None  # of a state or a window no part can be cut off
    plain = options.plain()
    own = predict(shape, plain)[0]
    room = uses[0].place.usable_bytes - uses[0].needed_bytes
    if own.total_bytes > room:
        return None
    token = kv_bytes(shape.layers, replace(plain, n_ctx=256)) // 256
    return PlainCopy(plain, own.total_bytes, token)


def rule_of(
    copy: PlainCopy, options: LoadOptions, repacked: PassCosts, plain: PassCosts
) -> ReadingRule | None:
    """Return which prompts a plain copy reads, by what passes cost here, in chunks of either; None where it gains nothing.

    `options` are those of the repacked weights.
    """
    narrow, wide = options.chunk(on_gpu=False), copy.options.chunk(on_gpu=False)
    slow_s, fast_s = repacked.of(narrow) / narrow, plain.of(wide) / wide
    if slow_s < MARGIN * fast_s:
        return None
    return ReadingRule(slow_s - fast_s, copy.token_bytes / _MOVED_BYTES_S)
