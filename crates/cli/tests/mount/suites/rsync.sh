# rsync both ways, with everything that it keeps, and again after changes.
mkdir -p "$2/from/d/e"
cp -a /usr/include/linux "$2/from/linux"
ln "$2/from/linux/fs.h" "$2/from/d/hard"
ln -s ../nowhere "$2/from/d/soft"
mkfifo "$2/from/d/fifo"
chmod 4751 "$2/from/linux/stat.h"
chown daemon:daemon "$2/from/linux/types.h"
head -c 9000000 /dev/urandom >"$2/from/d/e/large"
touch -d 1970-01-02 "$2/from/d/e"
rsync -aHX --numeric-ids "$2/from/" "$1/there/"
rsync -aHX --numeric-ids "$1/there/" "$2/back/"
same() {
    changes=$(rsync -aHXcni --numeric-ids --delete "$1/" "$2/")
    test -z "$changes" || { echo "$changes"; exit 1; }
}
same "$2/from" "$1/there"
same "$2/from" "$2/back"
# Deltas, deletions and changes in place.
printf changed | dd of="$2/from/d/e/large" bs=1 seek=4000000 conv=notrunc 2>/dev/null
rm -r "$2/from/linux/netfilter"
mv "$2/from/linux/usb" "$2/from/d/usb"
rsync -aHX --numeric-ids --delete --inplace --no-whole-file "$2/from/" "$1/there/"
same "$2/from" "$1/there"
find "$1/there" | wc -l
