"""`stepkeep evidence`: write the evidence pack of a run, verify one, and make the key that signs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.answering import ask, of_run, print_answer, print_value
from stepkeep.cli.arguments import Text, Texts, arg, opt
from stepkeep.cli.command import program
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.evidence.heads import HeadsSigned


@program.command("evidence")
def evidence(
    settings: Settings,
    run: Annotated[Text, arg("[RUN]", "The finished run; a part of its id is enough.")] = None,
    output: Annotated[Path | None, opt("--output", "-o", "FILE", "Where to; evidence-RUN.zip by default.")] = None,
    sign_with: Annotated[
        Path | None, opt("--sign-with", "FILE", "Sign with this key.", envvar="STEPKEEP_SIGNING_KEY_FILE")
    ] = None,
    without_payloads: Annotated[
        bool, opt("--without-payloads", "Leave inputs and outputs out; their digests remain.")
    ] = False,
    verify: Annotated[Path | None, opt("--verify", "PACK", "Verify this pack instead. Needs no database.")] = None,
    public_key: Annotated[
        Texts, opt("--public-key", "KEY", "With --verify: a key that you trust, in hex or as a file.")
    ] = None,
    new_key: Annotated[Path | None, opt("--new-key", "FILE", "Make a signing key in this new file instead.")] = None,
    sign_heads: Annotated[
        bool, opt("--sign-heads", "Sign the heads of all finished runs that the key has not signed.")
    ] = False,
) -> int:
    """Write one archive that an auditor can check without Stepkeep: definition, journal, decisions, payloads.

    The archive holds its own verifier: python verify.py PACK.zip. A signed pack also proves that nothing was rewritten
    as a whole, to an auditor who has the public key from another source.
    """
    if sum((run is not None, verify is not None, new_key is not None, sign_heads)) != 1:
        raise InvalidInput("Say what to do: name a RUN, or give --verify PACK, --new-key FILE or --sign-heads.")
    if sign_heads:
        return _sign_heads(settings, sign_with)
    if public_key and verify is None:
        raise InvalidInput("--public-key goes with --verify.")
    if verify is not None:
        return _verify(settings, verify, public_key or [])
    if new_key is not None:
        return _new_key(settings, new_key)
    return _write(settings, run or "", output, sign_with, payloads=not without_payloads)


def _write(settings: Settings, run: str, output: Path | None, sign_with: Path | None, *, payloads: bool) -> int:
    async def make(engine: AsyncEngine, found: str) -> tuple[str, bytes]:
        return found, await engine.evidence(found, signing_key=sign_with, payloads=payloads)

    if sign_with is not None:
        settings.require_database("`stepkeep evidence --sign-with`")
    found, pack = ask(settings, of_run(run, make))
    path = output or Path(f"evidence-{found}.zip")
    try:
        with path.open("xb") as file:
            file.write(pack)
    except FileExistsError:
        raise InvalidInput(f"{path} exists. Evidence is never replaced; name another file with --output.") from None
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror or problem}.") from None
    view = {"run": found, "file": str(path), "bytes": len(pack), "signed": sign_with is not None}
    said = (
        f"{path}: the evidence of run {found}, {len(pack):,} bytes, {'signed' if sign_with else 'not signed'}",
        f"Verify it: stepkeep evidence --verify {path}, or without Stepkeep: python verify.py {path}",
    )
    return print_value(settings, {"evidence": view}, said)


def _sign_heads(settings: Settings, sign_with: Path | None) -> int:
    if sign_with is None:
        raise InvalidInput("--sign-heads needs a key: --sign-with FILE, or STEPKEEP_SIGNING_KEY_FILE.")
    settings.require_database("`stepkeep evidence --sign-heads`")

    def words(done: HeadsSigned) -> list[str]:
        rest = "" if done.is_complete else " There are more: call it again."
        return [
            f"{done.signed:,} heads of finished runs are signed with key {done.key_id}.{rest}",
            "A pack of each of these runs has the signature. Call this on a timer, soon after runs end.",
        ]

    return print_answer(settings, lambda engine: engine.sign_heads(sign_with), words, under="signed_heads")


def _verify(settings: Settings, path: Path, keys: list[str]) -> int:
    from stepkeep.evidence import verifier

    try:
        report = verifier.verify(verifier.read_pack(str(path)), verifier.trusted_keys(keys))
    except verifier.UnreadablePack as problem:
        raise InvalidInput(f"{problem}.") from None
    return print_value(settings, verifier.as_json(report), verifier.page(report), failed=not report.ok)


def _new_key(settings: Settings, path: Path) -> int:
    from stepkeep.evidence.signing import new_key, write_key

    key = new_key()
    write_key(path, key)
    said = (
        f"{path}: a new signing key, {key.id}. Keep the file secret and a copy safe.",
        f"public key: {key.public.hex()}",
        "Give the public key to your auditors by another way than the packs.",
    )
    return print_value(
        settings, {"signing_key": {"file": str(path), "id": key.id, "public_key": key.public.hex()}}, said
    )
