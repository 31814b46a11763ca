// The SharedWorker: holds the daemon's streams for all tabs of this browser.

import { StreamHub } from "./lib/stream-hub.js";

const hub = new StreamHub();

self.addEventListener("connect", (event) => {
  const [port] = event.ports;
  const client = { sessions: new Set(), post: (message) => port.postMessage(message) };
  port.addEventListener("message", ({ data }) => {
    if (data.type === "join") hub.join(client);
    else if (data.type === "watch") hub.watch(client, data.sessions);
    else if (data.type === "retry") hub.retry();
    else if (data.type === "leave") hub.leave(client);
  });
  port.addEventListener("close", () => hub.leave(client)); // A tab that crashed says nothing.
  port.start();
});
