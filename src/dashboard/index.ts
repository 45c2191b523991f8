export { createDashboard, type Dashboard } from './dashboard.js';
export {
  toFastifyHandler,
  toNodeHandler,
  type FastifyReplyLike,
  type FastifyRequestLike,
} from './http/node.js';
export type { DashboardOptions, Granted, Mill } from './options.js';
export type { Right } from './contract.js';
