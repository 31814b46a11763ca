// What requests to models used: read, and added up.

/** Tokens and cost of something with a `usage`: a request tells them in other words than a turn. */
export function usageOf({ usage }) {
  if (!usage) return { tokens: 0, input: 0, output: 0, cost: null, unpriced: 0 };
  const input = usage.input_tokens ?? usage.tokens?.input ?? 0;
  const output = usage.output_tokens ?? usage.tokens?.output ?? 0;
  const tokens = usage.total_tokens ?? usage.tokens?.total ?? input + output;
  const cost = usage.cost_usd === null || usage.cost_usd === undefined ? null : Number(usage.cost_usd);
  return { tokens, input, output, cost, unpriced: usage.unpriced_tokens ?? (cost === null ? tokens : 0) };
}

/** Add up what several have used, in the words of a turn. */
export function totalOf(several) {
  const all = several.map(usageOf);
  const sum = (key) => all.reduce((total, one) => total + (one[key] ?? 0), 0);
  return {
    tokens: { input: sum("input"), output: sum("output"), total: sum("tokens") },
    cost_usd: all.some((one) => one.cost !== null) ? sum("cost") : null,
    unpriced_tokens: sum("unpriced"),
  };
}
