"""Tricks with identities: as whom pal acts. `cases.py` has them as one table of a case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta

from stepkeep.engine import AsyncEngine
from tests.people.ways.play import Play, Trick
from tests.people.world import Acting


async def _as_pal(play: Play) -> list[Acting]:
    return [await play.as_(play.pal)]


async def _own_key(play: Play) -> list[Acting]:
    return [(await play.world.holding(await play.world.key(play.pal)), {})]


async def _second_key(play: Play) -> list[Acting]:
    scopes = (("decide", "complete"), ("decide", "complete", "admin", "vouch"))
    return [(await play.world.holding(await play.world.key(play.pal, *one)), {}) for one in scopes]


async def _rotated(play: Play) -> list[Acting]:
    actor = await play.world.holding(key := await play.world.key(play.pal))
    async with play.world._changing:
        made = await actor.keys.rotate(key.split("_")[1])
    return [(await play.world.holding(made["secret"]), {})]


async def _session(play: Play) -> list[Acting]:
    return [(await play.world.session(await play.world.key(play.pal)), {})]


def _named(*changes: Callable[[str], str]) -> Callable[[Play], Awaitable[list[Acting]]]:
    """Pal under names that a reader takes for theirs."""

    async def disguises(play: Play) -> list[Acting]:
        return [await play.world.vouched(change(play.pal)) for change in changes]

    return disguises


async def _let_pal(play: Play) -> None:
    """A person with the role lets pal decide on their behalf."""
    await play.world.person(f"dan{play.tail}", "finance")
    await play.world.people("delegate", f"dan{play.tail}", play.pal, open_ended=True)


async def _for_dan(play: Play) -> list[Acting]:
    actor, named = await play.as_(play.pal)
    return [(actor, {**named, "for_": f"dan{play.tail}"})]


async def _dan_first(play: Play) -> None:
    """Pal decides first on behalf of dan, and then in their own name."""
    await _let_pal(play)
    play.deciding = await _for_dan(play)


async def _dan_then_deb(play: Play) -> None:
    await _dan_first(play)
    await play.world.person(f"deb{play.tail}", "finance")
    await play.world.people("delegate", f"deb{play.tail}", play.pal, open_ended=True)


async def _for_deb(play: Play) -> list[Acting]:
    actor, named = await play.as_(play.pal)
    return [(actor, {**named, "for_": f"deb{play.tail}"})]


async def _let_zed(play: Play) -> None:
    """Pal lets a friend without the role decide on their behalf."""
    await play.world.person(f"zed{play.tail}")
    await play.world.people("delegate", play.pal, f"zed{play.tail}", open_ended=True)


async def _zed_for_pal(play: Play) -> list[Acting]:
    actor, named = await play.as_(f"zed{play.tail}")
    return [(actor, {**named, "for_": play.pal}), (actor, named)]


async def _service(play: Play) -> list[Acting]:
    robot = await play.world.person(f"bot{play.tail}", "finance", kind="service")
    return [(await play.world.holding(await play.world.key(robot)), {})]


async def _joined(play: Play) -> list[Acting]:
    """A friend gets the role, directly and by a group, after the gate has opened."""
    friend = await play.world.person(f"zed{play.tail}", "finance")
    other = await play.world.person(f"yan{play.tail}")
    await play.world.people("grant", f"club{play.tail}", role="finance", to_group=True)
    await play.world.people("grant", other, group=f"club{play.tail}")
    return [await play.as_(friend), await play.as_(other)]


async def _dated_back(play: Play) -> list[Acting]:
    friend = await play.world.person(f"zed{play.tail}")
    await play.world.people("grant", friend, role="finance", valid_from=datetime.now(UTC) - timedelta(days=1))
    return [await play.as_(friend)]


async def _other_tenant(play: Play) -> list[Acting]:
    """A person of that name, with that role, in another tenant."""
    async with AsyncEngine(play.world.url, tenant="other", actor="root") as other:
        await other.users.create(play.sue)
        await other.users.grant(play.sue, role="finance")
        made = await other.keys.create(play.sue, scopes=["decide", "complete"])
    return [(await play.world.holding(made["secret"]), {})]


def _looks(*changes: Callable[[str], str]) -> Trick:
    return Trick(_named(*changes), rules=("InvalidInput",), any_name=True, goes_on=True)


TRICKS: Mapping[str, Trick] = {
    "self": Trick(_as_pal, goes_on=True),
    "own_key": Trick(_own_key, goes_on=True),
    "second_key": Trick(_second_key),
    "rotated_key": Trick(_rotated, goes_on=True),
    "session": Trick(_session),
    "case": _looks(str.upper, str.title),
    "cyrillic": _looks(lambda name: name.replace("a", "а"), lambda name: name.replace("p", "р")),
    "full_width": _looks(lambda name: "".join(chr(ord(one) + 0xFEE0) for one in name)),
    "zero_width": _looks(
        *(lambda name, mark=mark: f"{name[:1]}{mark}{name[1:]}" for mark in "\u200b\u200d\u2060\ufeff")
    ),
    "ignorable": _looks(*(lambda name, mark=mark: f"{name}{mark}" for mark in "\ufe0f\u034f\u3164\u115f\u00ad")),
    "combining": _looks(lambda name: f"{name}\u0307", lambda name: f"p\u0323{name[1:]}"),
    "confusable": _looks(
        lambda name: name.replace("a", "ɑ"),
        *(lambda name, other=other: name.replace("l", other) for other in "1I|ӏ"),
    ),
    "blank": _looks(lambda name: f"{name} ", lambda name: f"{name}\u00a0"),
    "for_dan": Trick(_for_dan, _let_pal),
    "dan_first": Trick(_as_pal, _dan_first),
    "dan_then_deb": Trick(_for_deb, _dan_then_deb),
    "zed_for_pal": Trick(_zed_for_pal, _let_zed, rules=("approvers",)),
    "service": Trick(_service, rules=("service",)),
    "joined": Trick(_joined, rules=("approvers",)),
    "dated_back": Trick(_dated_back, rules=("approvers",)),
    "other_tenant": Trick(_other_tenant, rules=("NotFound",)),
}

NEEDS_TERMS = ("zed_for_pal", "for_dan", "dan_then_deb", "service", "joined", "dated_back", "other_tenant", "session")
"""Tricks that concern approvals: `decide` and `complete` take any person whom the duties allow."""
