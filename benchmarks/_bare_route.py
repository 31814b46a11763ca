"""A FastAPI application with one route and nothing behind it, served as the daemon is; it prints its address."""

import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Asked(BaseModel):
    prompt: str
    metadata: dict[str, Any] = {}


class Answered(BaseModel):
    response: str
    turn: int
    usage: dict[str, Any]


app = FastAPI()


@app.post("/route")
async def route(body: Asked) -> Answered:
    return Answered(response=body.prompt, turn=1, usage={})


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else an answer can wait 40 ms for its body
        sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            timeout_keep_alive=75,
        )
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
