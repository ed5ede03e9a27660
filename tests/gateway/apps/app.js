// An application on Node's own server. The second part of the path says what it does. It listens on descriptor 3.
'use strict'
const crypto = require('node:crypto')
const fs = require('node:fs')
const http = require('node:http')
const zlib = require('node:zlib')

const record = fs.openSync(process.env.RECORD, 'a')
const gate = process.env.GATE
// Idle connections close after a random time of at most this many milliseconds.
const idle = Number(process.env.IDLE_MS || 0)

const note = (line) => fs.writeSync(record, JSON.stringify(line) + '\n')

// Calls `then` once the file exists.
const when = (path, then) => fs.existsSync(path) ? then() : setTimeout(when, 1, path, then)

const noteRequest = (request, length, digest) => note({
  method: request.method,
  target: request.url,
  length,
  digest,
  fields: Object.keys(request.headers).sort(),
  client: request.headers['x-forwarded-for']
})

const digest = (request, then) => {
  const sum = crypto.createHash('sha256')
  let length = 0
  request.on('data', (piece) => { sum.update(piece); length += piece.length })
  request.on('end', () => then(length, sum.digest('hex')))
}

const verbs = {
  echo (request, response) {
    digest(request, (length, digest) => {
      noteRequest(request, length, digest)
      response.writeHead(200, { 'X-Seen': '1', 'Content-Length': digest.length })
      response.end(digest)
    })
  },
  fields (request, response) {
    const pairs = []
    for (let i = 0; i < request.rawHeaders.length; i += 2) pairs.push(request.rawHeaders.slice(i, i + 2))
    response.end(JSON.stringify(pairs))
  },
  send (request, response, query) {
    for (const [name, value] of query) if (name !== 'body') response.setHeader(name, value)
    digest(request, (length, digest) => {
      noteRequest(request, length, digest)
      response.end(Buffer.alloc(Number(query.get('body') || 0)))
    })
  },
  sum (request, response) {
    when(gate, () => digest(request, (length, digest) => response.end(`${length} ${digest}`)))
  },
  make (request, response, query) {
    const count = Number(query.get('blocks'))
    let number = 0
    response.writeHead(200, query.has('chunked') ? {} : { 'Content-Length': count * 65536 })
    response.on('close', () => { if (!response.writableFinished) note({ event: 'left' }) })
    const base = Buffer.from(Array.from({ length: 65536 }, (_, i) => i & 255))
    const more = () => {
      while (number < count) {
        const block = Buffer.from(base)
        block.writeBigUInt64BE(BigInt(number++))
        if (!response.write(block)) return response.once('drain', more)
      }
      response.end()
    }
    more()
  },
  hold (request, response) {
    note({ event: 'held' })
    response.on('close', () => note({ event: 'left' }))
  },
  sse (request, response, query) {
    const count = Number(query.get('events'))
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.flushHeaders()
    const next = (number) => {
      if (number === count) return response.end()
      when(`${gate}.${number}`, () => { response.write(`data: ${number}\n\n`); next(number + 1) })
    }
    next(0)
  },
  trailers (request, response) {
    response.writeHead(200, { Trailer: 'X-Sum' })
    response.write('a trailer')
    response.addTrailers({ 'X-Sum': '1' })
    response.end()
  },
  status (request, response, query) {
    response.writeHead(Number(query.get('code')), { ETag: '"v1"' })
    response.end()
  },
  close (request, response, query) {
    // Without a length and without chunks.
    request.socket.end('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n' + '\0'.repeat(Number(query.get('bytes'))))
  },
  short (request) {
    request.socket.end('HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n' + '\0'.repeat(500))
  },
  gzip (request, response) {
    response.writeHead(200, { 'Content-Encoding': 'gzip', 'Content-Type': 'text/plain', Vary: 'Accept-Encoding' })
    response.end(zlib.gzipSync('text '.repeat(1000)))
  },
  hints (request, response) {
    response.writeEarlyHints({ link: '</a.css>; rel=preload' })
    when(gate, () => response.end('final'))
  },
  refuse (request, response) { response.end('not refused') },
  chunks (request, response) {
    response.write('a')
    response.end('b')
  }
}

const serve = (request, response) => {
  const [path, query] = request.url.split('?')
  const verb = verbs[path.split('/')[2]] || verbs.echo
  verb(request, response, new URLSearchParams(query))
}

const server = http.createServer(serve)
server.on('checkContinue', (request, response) => {
  if (request.url.includes('/refuse')) {
    response.writeHead(413, { Connection: 'close' })
    return response.end('too large')
  }
  response.writeContinue()
  serve(request, response)
})
if (idle) {
  server.on('connection', (socket) => {
    let timer = null
    const arm = () => { timer = setTimeout(() => socket.end(), Math.random() * idle) }
    socket.on('data', () => clearTimeout(timer))
    socket.on('close', () => clearTimeout(timer))
    socket.encke_arm = arm
  })
  server.on('request', (request, response) => response.on('finish', () => request.socket.encke_arm()))
}
server.on('clientError', (error, socket) => {
  note({ event: 'rejected', code: error.code })
  if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
})
server.listen({ fd: 3 })
