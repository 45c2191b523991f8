import type { IncomingMessage, ServerResponse } from 'node:http';
import { createDashboard, toNodeHandler, type DashboardOptions } from '../../dashboard/index.js';
import { opening, type Connection } from './connection.js';

export interface ServeDashboardOptions {
  /**
   * Decides what a caller may do. mongodash lets everybody in, which `() => ['view', 'payload', 'act']` does here.
   * Default: nobody.
   */
  authorize?: DashboardOptions['authorize'];
  /** Where browsers reach it. Default: what Express mounts it at, else '/dashboard'. */
  basePath?: string;
}

type Serve = (request: IncomingMessage, response: ServerResponse) => void;

const served = new Map<string, { readonly authorize: unknown; readonly serve: Serve }>();

function handlerOf(
  { base, onError }: Connection,
  basePath: string,
  { authorize }: ServeDashboardOptions,
): Serve {
  const known = served.get(basePath);
  if (known !== undefined && known.authorize === authorize) return known.serve;
  const dashboard = createDashboard({
    mill: base,
    basePath,
    authorize: authorize ?? (() => null),
    onError: (error) => onError(error as Error),
  });
  const serve = toNodeHandler(dashboard);
  served.set(basePath, { authorize, serve });
  return serve;
}

/** Serves the dashboard below its path, with node:http, Express or Koa. Resolves to false for other paths. */
export async function serveDashboard(
  request: IncomingMessage,
  response: ServerResponse,
  options: ServeDashboardOptions = {},
): Promise<boolean> {
  const { originalUrl, baseUrl } = request as { originalUrl?: string; baseUrl?: string };
  const path = (originalUrl ?? request.url ?? '/').replace(/[?#].*$/su, '');
  const basePath = options.basePath ?? (baseUrl === undefined || baseUrl === '' ? '/dashboard' : baseUrl);
  const prefix = basePath.replace(/\/$/u, '');
  if (path !== prefix && !path.startsWith(`${prefix}/`)) return false;
  const serve = handlerOf(opening(), basePath, options);
  await new Promise<void>((resolve) => {
    response.once('close', resolve);
    serve(request, response);
  });
  return true;
}
