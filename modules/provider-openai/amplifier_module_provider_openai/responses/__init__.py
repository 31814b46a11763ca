"""The Responses API: `request` and `items` build a body, `stream` and `answer` read what comes, `api` runs a call."""
