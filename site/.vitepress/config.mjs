import path from 'node:path'
import { slug } from 'github-slugger'
import { defineConfig } from 'vitepress'
import { pages, published, staged, target } from '../pages.mjs'
import { sidebar } from './sidebar.mjs'

// The browser loads nothing from another host: pages, scripts, fonts and the search index are all files of the site.
const policy = [
  "default-src 'self'", "script-src 'self' 'unsafe-inline'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data:",
].join('; ')

// links turns what pages link to in the repository into links of the site.
function links(md) {
  md.core.ruler.push('links', state => {
    const page = path.relative(staged, state.env.realPath ?? state.env.path).split(path.sep).join('/')
    for (const token of state.tokens.flatMap(token => token.children ?? [])) {
      if (token.type === 'link_open') token.attrSet('href', target(page, token.attrGet('href')))
    }
  })
}

// html leaves out the comments of pages, and shows every other element as text but the line breaks of tables.
function html(md) {
  const rule = (tokens, i) => {
    const { content } = tokens[i]
    if (/^\s*<!--/.test(content)) return ''
    return /^<br ?\/?>$/.test(content) ? '<br>' : md.utils.escapeHtml(content)
  }
  md.renderer.rules.html_inline = rule
  md.renderer.rules.html_block = rule
}

export default defineConfig({
  title: 'Tollgate',
  description: 'Who may pass a taint, what a taint would do, and who leaves because of it',
  srcDir: staged,
  rewrites: Object.fromEntries(pages.filter(page => page !== published(page)).map(page => [page, published(page)])),
  outDir: 'dist',
  cacheDir: 'cache',
  head: [['meta', { 'http-equiv': 'Content-Security-Policy', content: policy }]],
  markdown: {
    anchor: { slugify: text => slug(text) },
    config(md) {
      links(md)
      html(md)
    },
  },
  themeConfig: {
    nav: [
      { text: 'Quickstart', link: '/docs/quickstart' },
      { text: 'Documentation', link: '/docs/' },
      { text: 'Changelog', link: '/CHANGELOG' },
    ],
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
  },
})
