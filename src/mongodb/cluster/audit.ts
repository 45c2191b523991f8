import type { Collection, Document, Filter } from 'mongodb';
import type { AuditEntry, AuditPageRequest, AuditStore } from '../../store/audit.js';
import { literal, run, type AuditDocument } from '../context.js';

const toEntry = ({ _id, expiresAt, ...row }: AuditDocument): AuditEntry =>
  ({ ...row, id: _id }) as unknown as AuditEntry;

/** Matches entries older than the cursor, ties by id. */
function auditQuery({ after }: AuditPageRequest): Filter<AuditDocument> {
  if (after === undefined) return {};
  const { at, id } = after;
  return { at: { $lte: at }, $or: [{ at: { $lt: at } }, { _id: { $lt: id } }] };
}

export function auditStore(audit: () => Collection<AuditDocument>): AuditStore {
  const change = async (id: string, set: Document, upsert: boolean): Promise<AuditEntry | undefined> => {
    const row = await audit().findOneAndUpdate({ _id: id }, [{ $set: set }], {
      upsert,
      returnDocument: 'after',
    });
    return row === null ? undefined : toEntry(row);
  };

  return {
    append: ({ id, ...entry }, keepMs) =>
      run('save an audit entry', async () => {
        const fields = Object.entries({ ...entry, stopRequested: false }).filter(
          ([, value]) => value !== undefined,
        );
        // A repeated call finds the entry and leaves it as it is.
        const kept = Object.fromEntries(
          fields.map(([key, value]) => [key, { $ifNull: [`$${key}`, literal(value)] }]),
        );
        const times = {
          at: { $ifNull: ['$at', '$$NOW'] },
          updatedAt: { $ifNull: ['$updatedAt', '$$NOW'] },
          expiresAt: { $ifNull: ['$expiresAt', { $add: ['$$NOW', keepMs] }] },
        };
        return (await change(id, { ...kept, ...times }, true)) as AuditEntry;
      }),
    amend: (id, { outcome, details, stopRequested }) =>
      run('change an audit entry', () =>
        change(
          id,
          {
            updatedAt: '$$NOW',
            ...(outcome === undefined ? {} : { outcome: literal(outcome) }),
            ...(details === undefined ? {} : { details: literal(details) }),
            ...(stopRequested === undefined ? {} : { stopRequested }),
          },
          false,
        ),
      ),
    get: (id) =>
      run('read an audit entry', async () => {
        const row = await audit().findOne({ _id: id });
        return row === null ? undefined : toEntry(row);
      }),
    list: (page) =>
      run('read the audit log', async () => {
        const rows = await audit()
          .find(auditQuery(page), { sort: { at: -1, _id: -1 }, limit: page.limit + 1 })
          .toArray();
        return {
          entries: rows.slice(0, page.limit).map((row) => toEntry(row as AuditDocument)),
          more: rows.length > page.limit,
        };
      }),
  };
}
