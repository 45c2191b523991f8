const LEAST = 54;
/** Between the labels and the chart, and before the first letter. */
const MARGIN = 14;

/** The width that an axis needs, so that none of its labels is cut. `widthOf` measures a label in CSS pixels. */
export const axisWidth = (labels: readonly string[], widthOf: (label: string) => number): number =>
  Math.max(LEAST, ...labels.map((label) => Math.ceil(widthOf(label)) + MARGIN));
