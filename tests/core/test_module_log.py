"""What a module says while it mounts is heard by the session it mounts in."""

import asyncio
import logging

from amplifier_core.bring_up import heard_from

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


def test_only_what_is_a_warning_or_worse_is_heard_and_only_in_the_innermost_block() -> None:
    logger = logging.getLogger(PACKAGE)
    logger.setLevel(logging.DEBUG)
    try:
        with heard_from(PACKAGE) as outer, heard_from(PACKAGE) as inner:
            logger.info("looking for a key")
            logger.warning("no key")
        logger.warning("too late")
    finally:
        logger.setLevel(logging.NOTSET)

    assert (outer, inner) == ([], ["no key"])
