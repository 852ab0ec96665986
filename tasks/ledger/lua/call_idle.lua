-- A bell could not be sent: all workers that wait for one look for work.   reply: how many heard it
-- PUBLISH needs no memory, so a full Redis does it.
return call('PUBLISH', Q .. ':wake:', 'bell')
