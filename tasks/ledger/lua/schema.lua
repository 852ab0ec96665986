-- Claims an empty Redis for a version of the data model.   own: version   reply: {1 it did so, the version that is there}
allowed_when_full()                     -- workers that start beside a full Redis empty it
local claimed = call('SET', R .. ':schema', ARGV[OWN], 'NX')
return {claimed and 1 or 0, call('GET', R .. ':schema')}
