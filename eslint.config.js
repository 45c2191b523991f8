import js from '@eslint/js';
import { defineConfig, globalIgnores } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  globalIgnores([
    '**/dist/',
    'coverage/',
    '.tidemill/',
    'docs/',
    'bench/results/',
    // Scripts for mongosh and psql.
    'privileges/',
    'site/pages/',
    'site/.vitepress/cache/',
  ]),
  js.configs.recommended,
  tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      // A method with `this: void` may be destructured.
      '@typescript-eslint/no-invalid-void-type': ['error', { allowAsThisParameter: true }],
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        // A `default` that assigns to `never` is how the code itself says "all cases named".
        { considerDefaultExhaustiveForUnions: true },
      ],
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/consistent-type-exports': 'error',
      // There are no enums here, and looking for them takes an eighth of the time.
      '@typescript-eslint/no-unsafe-enum-assignment': 'off',
      eqeqeq: 'error',
      // The compiler finds unknown names, in JavaScript too.
      'no-undef': 'off',
      // A number in a message reads as meant; objects and undefined do not.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // `async` turns a throw into a rejection, which every method of the store port promises; a store that
      // has nothing to await still needs it.
      '@typescript-eslint/require-await': 'off',
      // `() => stop()` returns nothing of use, and braces around it add nothing.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // `while (true)` around a wait is a loop, not an oversight.
      '@typescript-eslint/no-unnecessary-condition': [
        'error',
        { allowConstantLoopConditions: 'only-allowed-literals' },
      ],
      // An underscore says that a parameter is there for its place; naming fields is how a rest leaves them out.
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true },
      ],
    },
  },
  {
    files: ['test/**', 'bench/**', 'examples/**'],
    // A missing element fails the test by itself.
    rules: { '@typescript-eslint/no-non-null-assertion': 'off' },
  },
  {
    files: ['examples/frameworks/nestjs/**'],
    // A module of NestJS is its decorator.
    rules: { '@typescript-eslint/no-extraneous-class': ['error', { allowWithDecorator: true }] },
  },
  {
    files: ['bench/**'],
    // The libraries measured beside this one may have no types.
    rules: {
      '@typescript-eslint/no-explicit-any': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
    },
  },
  {
    files: ['**/*.mjs'],
    // These rules do not see a cast written as a comment, so `JSON.parse` could never be given a type.
    rules: {
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
    },
  },
  {
    // Outside the type-checked program: plain configuration, and benchmark scripts in JavaScript.
    files: ['**/*.cjs', 'bench/**/*.{js,mjs}', 'examples/**/*.{js,mjs}'],
    extends: [tseslint.configs.disableTypeChecked],
  },
  { files: ['**/*.cjs'], languageOptions: { sourceType: 'commonjs' } },
);
