import { isEmail, sendEmail } from '@/lib/jobs';
import { mill } from '@/lib/mill';

export async function POST(request: Request): Promise<Response> {
  const body: unknown = await request.json().catch(() => undefined);
  if (!isEmail(body))
    return Response.json({ error: 'The body must have "to" and "subject".' }, { status: 400 });
  const { id } = await mill.enqueue(sendEmail, body);
  return Response.json({ id }, { status: 202 });
}
