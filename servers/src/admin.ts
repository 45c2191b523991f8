import { MongoClient, type Document } from 'mongodb';

/** The part of a `hello` response that tells a member's role. */
export interface Hello {
  readonly isWritablePrimary?: boolean;
  readonly secondary?: boolean;
  readonly electionId?: { toString(): string };
}

/** Runs one command on exactly this server, whatever its role in a replica set. */
export async function adminCommand(port: number, command: Document, timeoutMs = 30_000): Promise<Document> {
  const client = new MongoClient(`mongodb://127.0.0.1:${port}/?directConnection=true`, {
    serverSelectionTimeoutMS: timeoutMs,
    connectTimeoutMS: timeoutMs,
    socketTimeoutMS: timeoutMs,
  });
  try {
    return await client.db('admin').command(command);
  } finally {
    await client.close();
  }
}

/** Returns undefined if the server is down, paused or starting. The timeout is short because callers ask again. */
export async function hello(port: number): Promise<Hello | undefined> {
  return adminCommand(port, { hello: 1 }, 500).catch(() => undefined);
}
