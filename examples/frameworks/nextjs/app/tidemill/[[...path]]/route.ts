import { dashboard } from '@/lib/dashboard';

/** The dashboard checks each request itself, in `authorize`. */
const answer = (request: Request): Promise<Response> => dashboard.fetch(request);

export { answer as GET, answer as HEAD, answer as POST };
