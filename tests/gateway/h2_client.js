// An HTTP/2 client without TLS, on Node's own implementation: `node h2_client.js PORT`.
//
// Standard input has one command per line, standard output one event per line, both as JSON. Commands name a stream by a number of
// the caller's choice:
//   {"do": "request", "stream": N, "headers": {…}, "end": true}   {"do": "write", "stream": N, "data": BASE64}
//   {"do": "blocks", "stream": N, "count": N, "change": N}        the content of a large transfer, block by block; block N differs
//   {"do": "pause" | "resume" | "end" | "reset", "stream": N}
// Events: response, data (BASE64, at most 1 KiB), taken (bytes of an upload that the connection has taken), trailers, end (length and
// digest of the content), closed (the code of a reset).
'use strict'
const crypto = require('node:crypto')
const http2 = require('node:http2')
const readline = require('node:readline')

const session = http2.connect(`http://127.0.0.1:${process.argv[2]}`)
const streams = new Map()
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')
session.on('error', (error) => say({ event: 'error', text: String(error) }))
// A client may use the CONNECT of RFC 8441 only after the server has allowed it.
session.on('remoteSettings', (settings) => say({ event: 'settings', connect: settings.enableConnectProtocol }))

const blocks = (stream, number, count, change) => {
  const base = Buffer.from(Array.from({ length: 65536 }, (_, i) => i & 255))
  let taken = 0
  const next = (index) => {
    if (index === count) return stream.end()
    const block = Buffer.from(base)
    block.writeBigUInt64BE(BigInt(index))
    if (index === change) block[0] = 88
    // The next block follows when the connection has taken this one.
    stream.write(block, (error) => {
      if (error) return
      taken += block.length
      say({ event: 'taken', stream: number, bytes: taken })
      next(index + 1)
    })
  }
  next(0)
}

const commands = {
  request ({ stream: number, headers, end }) {
    const stream = session.request(headers, { endStream: end })
    const sum = crypto.createHash('sha256')
    let length = 0
    streams.set(number, stream)
    stream.on('response', (headers) => say({ event: 'response', stream: number, headers }))
    stream.on('trailers', (headers) => say({ event: 'trailers', stream: number, headers }))
    stream.on('data', (piece) => {
      sum.update(piece)
      length += piece.length
      if (piece.length <= 1024) say({ event: 'data', stream: number, data: piece.toString('base64') })
    })
    stream.on('end', () => say({ event: 'end', stream: number, length, digest: sum.digest('hex') }))
    stream.on('error', () => {})
    stream.on('close', () => say({ event: 'closed', stream: number, code: stream.rstCode }))
  },
  write ({ stream, data }) { streams.get(stream).write(Buffer.from(data, 'base64')) },
  blocks ({ stream, count, change }) { blocks(streams.get(stream), stream, count, change) },
  pause ({ stream }) { streams.get(stream).pause() },
  resume ({ stream }) { streams.get(stream).resume() },
  end ({ stream }) { streams.get(stream).end() },
  reset ({ stream }) { streams.get(stream).close(http2.constants.NGHTTP2_CANCEL) }
}
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', (line) => { const command = JSON.parse(line); commands[command.do](command) })
lines.on('close', () => session.destroy())
