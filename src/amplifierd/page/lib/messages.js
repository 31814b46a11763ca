// How the messages of a conversation are asked for.

import { ofSession } from "./api.js";

const PAGE = 40; // As many as are read when a conversation opens: more than a screen has.

/** The path and the query of messages with the results of tools, rendered: the latest ones unless `query` says others. */
export const messagesOf = (id, query) => [ofSession(id, "/messages"), { include: "tools", render: "html", limit: PAGE, ...query }];
