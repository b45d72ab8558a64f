#!/bin/sh
# dhclient's script in the lab: configures the interface. dhclient's own script would also change the machine's resolv.conf.
case $reason in
PREINIT) ip link set "$interface" up ;;
BOUND | REBOOT)
    ip address replace "$new_ip_address/$new_subnet_mask" dev "$interface"
    ip route replace default via "${new_routers%% *}"
    ;;
esac
