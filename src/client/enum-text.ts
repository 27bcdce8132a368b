/** The name of an enum's value in words; of one that is not known, its number. */
export function enumText(values: Readonly<Record<number, string>>, value: number): string {
  const name = value === 0 ? undefined : values[value];
  return name === undefined ? `unknown (${value})` : name.toLowerCase().replaceAll("_", " ");
}

/** Whether this version knows a value of an enum, and it says something. */
export function isKnownValue(values: Readonly<Record<number, string>>, value: number): boolean {
  return value !== 0 && values[value] !== undefined;
}
