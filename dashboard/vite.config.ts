import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { defineConfig, type Plugin } from 'vite';

/** What ends up in the built files, and has to be named beside them. */
const BUNDLED = ['preact', 'uplot', 'lucide'];

function licenses(): Plugin {
  const { resolve } = createRequire(import.meta.url);
  const textOf = (name: string): string => {
    const folder = dirname(resolve(`${name}/package.json`));
    return `${name}\n\n${readFileSync(join(folder, 'LICENSE'), 'utf8').trim()}\n`;
  };
  return {
    name: 'licenses',
    generateBundle() {
      const source = BUNDLED.map(textOf).join('\n---\n\n');
      this.emitFile({ type: 'asset', fileName: 'licenses.txt', source });
    },
  };
}

// Relative addresses only: the server says below which path the page lives, by a <base> in its head.
export default defineConfig({
  base: './',
  plugins: [licenses()],
  build: {
    outDir: '../dist/dashboard',
    emptyOutDir: true,
    // Nothing is inlined: the page allows no inline code.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2023',
  },
});
