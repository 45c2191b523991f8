import { Check, Copy } from 'lucide';
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { announce } from '../announce.js';
import { Icon } from './icon.js';

const THANKS_MS = 1_500;

/** An id in full, with a button to copy it. */
export function Id({ value, what = 'id' }: { readonly value: string; readonly what?: string }): VNode {
  return (
    <span class="id">
      <code>{value}</code>
      <CopyButton text={value} what={what} />
    </span>
  );
}

export function CopyButton({ text, what }: { readonly text: string; readonly what: string }): VNode {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), THANKS_MS);
      announce(`Copied the ${what}.`);
    } catch {
      announce('The browser does not allow copying. Select the text instead.', 'bad');
    }
  };
  return (
    <button type="button" class="icon-button" title={`Copy the ${what}`} onClick={() => void copy()}>
      <Icon of={copied ? Check : Copy} size={14} />
      <span class="hidden">Copy the {what}</span>
    </button>
  );
}
