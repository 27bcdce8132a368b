import { StoreFault } from "../store-port.js";
import { Unsound, type Finding } from "./verdict.js";

/** Reads rows. Those that are damaged beyond reading are a finding, any other fault is the store's. */
export async function reading<Rows>(
  read: () => Promise<Rows>,
  where: Pick<Finding, "table" | "key">,
  fault = "cannot be read",
): Promise<Rows> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof StoreFault) || error.reason !== "damaged") throw error;
    throw new Unsound({ ...where, fault });
  }
}
