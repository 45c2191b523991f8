/** Runs in a thread: allocates until nothing is left, if it is asked to. */

/** @param {import('../../../../src/index.js').JobContext<{ eat: boolean }>} job */
export default ({ data }) => {
  /** @type {object[]} */
  const eaten = [];
  while (data.eat) eaten.push(new Array(1_000).fill(0).map((x) => ({ x })));
};
