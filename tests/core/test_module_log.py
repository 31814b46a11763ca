"""What a module says while it mounts is heard by the session it mounts in."""

import asyncio
import logging

from amplifier_core.module_log import heard_from

PACKAGE = "amplifier_module_provider_shy"


async def test_two_sessions_that_mount_a_module_at_once_each_hear_their_own_messages_once() -> None:
    both_listen = asyncio.Barrier(2)

    async def mount(message: str) -> list[str]:
        with heard_from(PACKAGE) as said:
            await both_listen.wait()
            logging.getLogger(f"{PACKAGE}.provider").warning(message)
            await both_listen.wait()
        return said

    assert await asyncio.gather(mount("no key"), mount("no model")) == [["no key"], ["no model"]]
    assert not logging.getLogger(PACKAGE).handlers


def test_a_block_hears_only_what_is_serious_enough_for_it() -> None:
    logger = logging.getLogger(PACKAGE)
    with heard_from(PACKAGE, logging.ERROR) as outer, heard_from(PACKAGE) as inner:
        logger.warning("no key")
    logger.warning("too late")

    assert (outer, inner) == ([], ["no key"])
