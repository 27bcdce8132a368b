/** A map that is copied before its first change only. */
export class LazyMap<Value> {
  #current: ReadonlyMap<string, Value>;
  #copy: Map<string, Value> | undefined;

  constructor(start: ReadonlyMap<string, Value> | undefined) {
    this.#current = start ?? new Map<string, Value>();
  }

  get current(): ReadonlyMap<string, Value> {
    return this.#current;
  }

  get(id: string): Value | undefined {
    return this.#current.get(id);
  }

  set(id: string, value: Value): void {
    this.#own().set(id, value);
  }

  delete(id: string): void {
    if (this.#current.has(id)) this.#own().delete(id);
  }

  clear(): void {
    if (this.#current.size > 0) this.#own().clear();
  }

  #own(): Map<string, Value> {
    this.#copy ??= new Map(this.#current);
    this.#current = this.#copy;
    return this.#copy;
  }
}
