"""What a picture is asked to show. Imports nothing heavy, as the command line's help needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hloscope.errors import UsageError

__all__ = ["DEPTH", "HOPS", "DrawingView", "View", "remat_settings"]

DEPTH = 2
"""Parts of a scope that tell one box from another unless asked otherwise."""

HOPS = 2
"""How far around an instruction is drawn unless asked otherwise."""

_REMAT = "remat"
_NONE = "none"
_FULL = "full"


class View(StrEnum):
    """What a picture shows."""

    REMAT = "remat"
    SCOPE = "scope"
    AROUND = "around"


@dataclass(frozen=True, slots=True)
class DrawingView:
    """A view with what belongs to it.

    Attributes:
        view: Which.
        around: The instruction in the middle of ``around``.
        depth: Of ``scope``.
        hops: Of ``around``.
    """

    view: View
    around: str = ""
    depth: int = DEPTH
    hops: int = HOPS

    @classmethod
    def of(
        cls,
        *,
        view: View | str | None,
        around: str | None,
        depth: int | None,
        hops: int | None,
        beside: bool,
    ) -> DrawingView:
        """A view from a caller's words.

        Raises:
            UsageError: There is no such view, a number is too small, or
                something is given that the view would ignore.
        """
        if view is not None and view not in list(View):
            raise UsageError(f"there is no view {view!r}", hint=f"Choose one of {', '.join(View)}.")
        chosen = View(view) if view is not None else (View.AROUND if around else View.SCOPE)
        if (chosen is View.AROUND) != bool(around):
            raise UsageError(
                f"the view {chosen} and --around do not go together"
                if around
                else "the view around needs an instruction",
                hint="--around NAME draws the neighbourhood of an instruction; leave --view out.",
            )
        for given, flag, only in (
            (depth is not None, "--depth", View.SCOPE),
            (hops is not None, "--hops", View.AROUND),
            (beside, "--beside", View.REMAT),
        ):
            if given and chosen is not only:
                raise UsageError(
                    f"{flag} does not apply to the view {chosen}",
                    hint=f"Leave it out, or draw the view {only}.",
                )
        if (depth is not None and depth < 1) or (hops is not None and hops < 0):
            raise UsageError(
                "--depth takes a whole number of 1 or more, --hops one of 0 or more",
                hint="The higher, the more is drawn.",
            )
        return cls(
            chosen,
            around or "",
            DEPTH if depth is None else depth,
            HOPS if hops is None else hops,
        )


def remat_settings(
    options: Collection[str], settings: Mapping[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str] | None]:
    """Settings of an architecture with rematerialization, and of the same without it.

    Args:
        options: Names of what the architecture can be asked for.
        settings: What it was asked for.

    Returns:
        The settings to look at, ``remat=full`` where they do not say, and those
        of the step beside it: ``None`` where there is no choice, or where the
        user chose to do without.
    """
    if _REMAT not in options:
        return settings, None
    chosen = {**settings, _REMAT: settings.get(_REMAT, _FULL)}
    if chosen[_REMAT] == _NONE:
        return chosen, None
    return chosen, {**settings, _REMAT: _NONE}
