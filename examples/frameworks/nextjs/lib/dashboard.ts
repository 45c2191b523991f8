import { createHash, timingSafeEqual } from 'node:crypto';
import { createDashboard } from 'tidemill/dashboard';
import { mill } from '@/lib/mill';

const hash = (text: string): Buffer => createHash('sha256').update(text).digest();

/** HTTP basic authentication: the browser asks for a password. Without DASHBOARD_PASSWORD, access is denied. */
export const dashboard = createDashboard({
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
