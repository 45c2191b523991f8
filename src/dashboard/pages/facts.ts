/** Labels with what is known of them; what is not known is left out. */
export function factsOf(
  known: Readonly<Record<string, string | number | boolean | Date | null | undefined>>,
): readonly { readonly label: string; readonly value: string }[] {
  return Object.entries(known).flatMap(([label, value]) =>
    value === undefined || value === null
      ? []
      : [{ label, value: value instanceof Date ? value.toISOString() : String(value) }],
  );
}
