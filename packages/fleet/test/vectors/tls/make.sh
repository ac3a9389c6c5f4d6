#!/bin/sh
# Makes every certificate of this folder anew. The dates are fixed, so that they do not depend on the clock of the machine.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index.txt"
cat > "$work/ca.cnf" <<CNF
[ca]
default_ca = default
[default]
dir = $work
database = $work/index.txt
new_certs_dir = $work
rand_serial = yes
default_md = sha256
policy = policy
unique_subject = no
[policy]
commonName = supplied
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost,DNS:server.test,IP:127.0.0.1
[worker]
basicConstraints = CA:FALSE
extendedKeyUsage = clientAuth
CNF
# sign <file> <common name> <extensions> <how it is signed ...>
sign() {
  out=$1 name=$2 extensions=$3
  shift 3
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -config "$work/ca.cnf" \
    -subj "/CN=$name" -keyout "$work/$out.key" -out "$work/$out.csr" 2> /dev/null
  openssl ca -batch -notext -config "$work/ca.cnf" -extensions "$extensions" \
    -startdate 20250101000000Z -enddate 21250101000000Z -in "$work/$out.csr" -out "$out.pem" "$@" 2> /dev/null
}
for authority in test-only-ca test-only-other-ca; do
  sign "$authority" "$authority" authority -selfsign -keyfile "$work/$authority.key"
done
for party in server worker; do
  sign "test-only-$party" "test-only-$party" "$party" -cert test-only-ca.pem -keyfile "$work/test-only-ca.key"
  cp "$work/test-only-$party.key" "test-only-$party.key"
done
