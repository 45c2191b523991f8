import { createHash, timingSafeEqual } from 'node:crypto';
import type { Tidemill } from 'tidemill';
import { createDashboard, type Dashboard } from 'tidemill/dashboard';

/** The token by which the dashboard is injected. */
export const DASHBOARD = Symbol('dashboard');

const hash = (text: string): Buffer => createHash('sha256').update(text).digest();

/** HTTP basic authentication: the browser asks for a password. Without DASHBOARD_PASSWORD, access is denied. */
export const makeDashboard = (mill: Tidemill): Dashboard =>
  createDashboard({
    mill,
    basePath: '/tidemill',
    authorize: ({ headers }) => {
      const password = process.env.DASHBOARD_PASSWORD;
      if (!password) return null;
      const expected = `Basic ${Buffer.from(`ops:${password}`).toString('base64')}`;
      if (timingSafeEqual(hash(headers.get('authorization') ?? ''), hash(expected)))
        return { rights: ['view', 'payload', 'act'], actor: 'ops' };
      return new Response('Sign in as ops.', {
        status: 401,
        headers: { 'www-authenticate': 'Basic realm="Tidemill"' },
      });
    },
  });
