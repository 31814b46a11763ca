// Asks for what the address shows while the other files of the page are still on their way. `get` hands the answers on.

import { begin, ofSession } from "./lib/api.js";
import { messagesOf } from "./lib/messages.js";

const [, id, tab] = /^\/app\/sessions\/([\w.-]+)(\/.+)?/.exec(location.pathname) ?? [];

if (id) {
  begin(ofSession(id));
  if (!tab) begin(...messagesOf(id));
}
