/** A duration in a message, such as `1.7 s`. */
export const secondsText = (ms: number): string => `${String(Math.round(ms / 100) / 10)} s`;
