import { expect, it, vi } from 'vitest';
import { lazily } from '../../src/core/lazily.js';

it('lazily loads on the first call only', async () => {
  const load = vi.fn(() => Promise.resolve('loaded'));
  const loaded = lazily(load);
  expect(load).not.toHaveBeenCalled();
  expect(await Promise.all([loaded(), loaded()])).toEqual(['loaded', 'loaded']);
  expect(load).toHaveBeenCalledTimes(1);
});

it('lazily tries again after a failure', async () => {
  const load = vi.fn<() => Promise<string>>();
  load.mockRejectedValueOnce(new Error('no such file')).mockResolvedValue('loaded');
  const loaded = lazily(load);
  await expect(loaded()).rejects.toThrow('no such file');
  expect(await loaded()).toBe('loaded');
});
