/** Converts requests and responses of node:http to those of the web, and back. Express and Fastify pass theirs on. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { Dashboard } from '../dashboard.js';
import { badRequest } from './errors.js';
import { refused } from './respond.js';
import { requestUrl } from './target.js';

/** Frameworks strip the mount path from `url`, and may read the body before the handler runs. */
type Incoming = IncomingMessage & { readonly originalUrl?: string; readonly body?: unknown };

function headersOf({ headers }: IncomingMessage): Headers {
  const copy = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith(':') || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) copy.append(name, one);
  }
  return copy;
}

/** If the framework has already parsed the body, serializes it again. */
function bodyOf(incoming: Incoming): ReadableStream<Uint8Array> | string | null {
  if (incoming.method === 'GET' || incoming.method === 'HEAD') return null;
  if (incoming.body === undefined || incoming.body === null)
    return incoming.readableEnded ? null : (Readable.toWeb(incoming) as ReadableStream<Uint8Array>);
  return typeof incoming.body === 'string' ? incoming.body : JSON.stringify(incoming.body);
}

function toRequest(incoming: Incoming): Request {
  const scheme = Reflect.get(incoming.socket, 'encrypted') === true ? 'https' : 'http';
  const target = incoming.originalUrl ?? incoming.url ?? '/';
  const url = requestUrl(target, scheme, incoming.headers.host ?? 'localhost');
  if (url === undefined) throw badRequest('The request cannot be read.');
  const body = bodyOf(incoming);
  return new Request(url, {
    method: incoming.method ?? 'GET',
    headers: headersOf(incoming),
    ...(body === null ? {} : { body, duplex: 'half' }),
  });
}

/** Writes the body as fast as the client reads it, and cancels the source if the client disconnects. */
async function send(response: Response, outgoing: ServerResponse): Promise<void> {
  // Taken before the headers are sent, while an error about a used body can still be reported.
  const reader = response.body?.getReader() as ReadableStreamDefaultReader<Uint8Array> | undefined;
  if (response.bodyUsed) throw new TypeError('The response has been read already.');
  const cookies = response.headers.getSetCookie();
  const headers = [...response.headers].filter(([name]) => name !== 'set-cookie');
  outgoing.writeHead(response.status, {
    ...Object.fromEntries(headers),
    ...(cookies.length === 0 ? {} : { 'set-cookie': cookies }),
  });
  if (reader === undefined) {
    outgoing.end();
    return;
  }
  outgoing.once('close', () => void reader.cancel().catch(() => undefined));
  outgoing.flushHeaders();
  for (;;) {
    const { done, value } = await reader.read();
    if (done || outgoing.destroyed) break;
    if (!outgoing.write(value)) await drained(outgoing);
  }
  outgoing.end();
}

const drained = (outgoing: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    const go = (): void => {
      outgoing.off('drain', go).off('close', go);
      resolve();
    };
    outgoing.once('drain', go).once('close', go);
  });

/** For `http.createServer`, and for `app.use` of Express. */
export function toNodeHandler(
  dashboard: Pick<Dashboard, 'fetch'>,
): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  const answer = async (incoming: Incoming): Promise<Response> => {
    let request: Request;
    try {
      request = toRequest(incoming);
    } catch {
      return refused(badRequest('The request cannot be read.'));
    }
    return dashboard.fetch(request);
  };
  const failed = async (error: unknown, outgoing: ServerResponse): Promise<void> => {
    // The client disconnected, or the rest of the response failed; it is too late for an error response.
    if (outgoing.headersSent || outgoing.destroyed) outgoing.destroy();
    else await send(refused(error), outgoing);
  };
  return (incoming, outgoing) => {
    answer(incoming)
      .then((response) => send(response, outgoing))
      .catch((error: unknown) => failed(error, outgoing))
      .catch(() => outgoing.destroy());
  };
}

/** The parts of Fastify's request and reply that are used here. */
export interface FastifyRequestLike {
  readonly raw: IncomingMessage;
  readonly body?: unknown;
}
export interface FastifyReplyLike {
  readonly raw: ServerResponse;
  hijack(): unknown;
}

/** For `app.all(path, handler)` of Fastify. */
export function toFastifyHandler(
  dashboard: Pick<Dashboard, 'fetch'>,
): (request: FastifyRequestLike, reply: FastifyReplyLike) => void {
  const handle = toNodeHandler(dashboard);
  return (request, reply) => {
    reply.hijack();
    const incoming = request.raw as Incoming & { body?: unknown };
    if (request.body !== undefined && request.body !== null) incoming.body = request.body;
    handle(incoming, reply.raw);
  };
}
