"""The Chat Completions API: `request` and `messages` build a body, `answer` reads what comes, `api` runs a call."""
