# dbench: what a file server does all day, by four clients.
load=/usr/share/dbench/client.txt
dbench -c "$load" -D "$1" -t 20 4
rm -rf "$1/clients"
test -z "$(ls -A "$1")"
