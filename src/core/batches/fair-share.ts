/**
 * Divides `total` places among names. Each round splits what is left equally among the names that can still use more,
 * in the given order, and at least one place each while there are any. So a flood of one name never starves another.
 */
export function fairShare(offers: ReadonlyMap<string, number>, total: number): Map<string, number> {
  const shares = new Map<string, number>();
  let open = [...offers].filter(([, offer]) => offer > 0);
  let left = total;
  while (left > 0 && open.length > 0) {
    const each = Math.max(1, Math.floor(left / open.length));
    for (const [name, offer] of open) {
      const taken = Math.min(each, offer - (shares.get(name) ?? 0), left);
      shares.set(name, (shares.get(name) ?? 0) + taken);
      left -= taken;
    }
    open = open.filter(([name, offer]) => (shares.get(name) ?? 0) < offer);
  }
  return shares;
}
