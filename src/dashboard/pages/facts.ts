/** Turns fields into labels and texts, leaving out those without a value. */
export function factsOf(
  known: Readonly<Record<string, string | number | boolean | Date | null | undefined>>,
): readonly { readonly label: string; readonly value: string }[] {
  return Object.entries(known).flatMap(([label, value]) =>
    value === undefined || value === null
      ? []
      : [{ label, value: value instanceof Date ? value.toISOString() : String(value) }],
  );
}
