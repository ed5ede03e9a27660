# An application for servers of Rack: records each request.
require 'digest'
require 'json'

RECORD = File.open(ENV['RECORD'], 'a')
RECORD.sync = true

run(lambda do |env|
  body = env['rack.input'].read || ''
  names = env.keys.grep(/\AHTTP_/).map { |name| name[5..].tr('_', '-').downcase }
  target = env['REQUEST_URI'] || env['PATH_INFO']
  digest = Digest::SHA256.hexdigest(body)
  line = { method: env['REQUEST_METHOD'], target: target, length: body.bytesize, digest: digest, fields: names.sort,
           client: env['HTTP_X_FORWARDED_FOR'] }
  RECORD.write(JSON.generate(line) + "\n")
  [200, { 'X-Seen' => '1', 'Content-Length' => digest.bytesize.to_s }, [digest]]
end)
