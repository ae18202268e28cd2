# Writes through buffers, without them, and after a seek forwards: write.pl OUT
use strict; use warnings; use IO::Handle; use Fcntl;
open(my $out, '>', $ARGV[0]) or die "$ARGV[0]: $!";
print $out "$_ by print\n" for 1 .. 1000;
printf $out "%05d by printf\n", $_ for 1 .. 100;
$out->flush;
syswrite($out, "written past the buffer\n") or die $!;
close($out) or die $!;
