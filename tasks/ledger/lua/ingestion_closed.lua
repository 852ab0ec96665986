-- Pages that are done.   own: id first count   reply: JSON or '' for each of `count` pages
local out = {}
for page = tonumber(ARGV[OWN + 1]), ARGV[OWN + 1] + ARGV[OWN + 2] - 1 do
  out[#out + 1] = call('HGET', R .. ':ingestion-closed:' .. ARGV[OWN], page) or ''
end
return out
