-- Reads a token's record and changes nothing.
-- KEYS[1]  the token's record
-- returns  {'read', now, record}   record is '' where there is none

local now = floor(clock() / 1000)
return {'read', now, read(KEYS[1], now) or ''}
