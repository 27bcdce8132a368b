import type * as Sdk from "@agentclientprotocol/sdk";
import { acpNotice } from "../projection/acp.js";
import type { ServerLink } from "../server/server-link.js";
import { AskDesk } from "./acp-asks.js";
import { BodyReader } from "./acp-bodies.js";
import { followFaultText, SessionFollow, type FollowMeans } from "./acp-follow.js";

const NO_PROMPTS =
  "Toolmark records what an agent does; it does not run one. Talk to the agent where it runs.";

/** What the bridge stands between. */
export interface AcpMeans {
  readonly sdk: typeof Sdk;
  readonly link: Pick<ServerLink, "history" | "approvals">;
  readonly sessionId: string;
  /** The wire to the editor. */
  readonly stream: Sdk.Stream;
  readonly version: string;
  readonly mintRequestId: () => string;
  /** One line for whoever looks after the program. */
  readonly log: (text: string) => void;
}

/** Serves one session to an ACP client until that hangs up. Throws a fault of the program. */
export async function serveAcp(means: AcpMeans): Promise<void> {
  const bridge = new Bridge(means);
  const connection = bridge.agent().connect(means.stream);
  try {
    await Promise.race([connection.closed, bridge.failed]);
  } finally {
    bridge.stop();
    connection.close();
  }
}

class Bridge {
  readonly failed: Promise<never>;
  readonly #means: AcpMeans;
  #fail: (error: unknown) => void = () => undefined;
  #client: Sdk.AgentContext | undefined;
  #showing = new AbortController();

  constructor(means: AcpMeans) {
    this.#means = means;
    this.failed = new Promise((_resolve, reject) => {
      this.#fail = reject;
    });
  }

  stop(): void {
    this.#showing.abort();
  }

  agent(): Sdk.AgentApp {
    const { sdk, sessionId, version } = this.#means;
    const { methods } = sdk;
    return sdk
      .agent({ name: "toolmark" })
      .onConnect(({ client }) => {
        this.#client = client;
      })
      .onRequest(methods.agent.initialize, () => ({
        protocolVersion: sdk.PROTOCOL_VERSION,
        agentCapabilities: { loadSession: true },
        agentInfo: { name: "toolmark", title: "Toolmark", version },
        authMethods: [],
      }))
      .onRequest(methods.agent.session.new, () => {
        // The client knows the session by the reply alone.
        setImmediate(() => {
          this.#show().catch(this.#sayFault);
        });
        return { sessionId };
      })
      .onRequest(methods.agent.session.load, async ({ params }) => {
        if (params.sessionId !== sessionId) {
          throw sdk.RequestError.sessionNotFound(params.sessionId);
        }
        await this.#show().catch((thrown: unknown) => {
          throw sdk.RequestError.internalError(undefined, followFaultText(thrown));
        });
        return {};
      })
      .onRequest(methods.agent.session.prompt, () => {
        throw sdk.RequestError.invalidRequest(undefined, NO_PROMPTS);
      })
      .onNotification(methods.agent.session.cancel, () => undefined);
  }

  readonly #sayFault = (thrown: unknown): void => {
    this.#tellFault(thrown).catch(this.#fail);
  };

  async #tellFault(thrown: unknown): Promise<void> {
    const text = followFaultText(thrown);
    this.#means.log(text);
    await this.#sendTo(this.#showing.signal)(acpNotice(text));
  }

  /** Shows the session anew from its beginning, and goes on. Resolves once all there was is shown. */
  async #show(): Promise<void> {
    this.#showing.abort();
    this.#showing = new AbortController();
    const { signal } = this.#showing;
    const { link, sessionId, log } = this.#means;
    const bodies = new BodyReader(link.history, signal, log);
    const means = { link, sessionId, bodies, log, signal, send: this.#sendTo(signal) };
    const follow = new SessionFollow(means);
    await new Promise<void>((resolve, reject) => {
      let isCaughtUp = false;
      const onCaughtUp = (): void => {
        if (!isCaughtUp) this.#beginAsks(means, follow);
        isCaughtUp = true;
        resolve();
      };
      follow.run(onCaughtUp).then(resolve, (thrown: unknown) => {
        if (signal.aborted) resolve();
        else if (isCaughtUp) this.#sayFault(thrown);
        else reject(asError(thrown));
      });
    });
  }

  #beginAsks(means: FollowMeans, follow: SessionFollow): void {
    const client = this.#client;
    if (client === undefined || means.signal.aborted) return;
    const { mintRequestId } = this.#means;
    new AskDesk({ ...means, client, follow, mintRequestId, fail: this.#fail })
      .run()
      .catch((thrown: unknown) => {
        if (!means.signal.aborted) this.#sayFault(thrown);
      });
  }

  /** Sends updates until the signal aborts. */
  #sendTo(signal: AbortSignal): FollowMeans["send"] {
    const { sessionId, sdk } = this.#means;
    return async (update) => {
      if (signal.aborted) return;
      await this.#client?.notify(sdk.methods.client.session.update, { sessionId, update });
    };
  }
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
