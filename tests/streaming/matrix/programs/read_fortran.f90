! Reads lines until the end and keeps their first number: read_fortran IN OUT
program read_fortran
  implicit none
  character(len=4096) :: path, target
  character(len=300) :: line
  integer :: number, status, lines, total
  logical :: there
  call get_command_argument(1, path)
  call get_command_argument(2, target)
  open(unit=10, file=trim(path), status='old', action='read')
  open(unit=11, file=trim(target), status='replace', action='write')
  lines = 0
  total = 0
  do
    read(10, '(a)', iostat=status) line
    if (status /= 0) exit
    read(line, *) number
    lines = lines + 1
    total = total + number
    if (mod(lines, 100) == 0) write(11, '(a)') trim(line)
  end do
  inquire(file=trim(path), exist=there)
  write(11, '(2i10, l2)') lines, total, there
  close(10)
  close(11)
end program
