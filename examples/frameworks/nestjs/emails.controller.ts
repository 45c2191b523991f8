import {
  BadRequestException,
  Body,
  Controller,
  Get,
  HttpCode,
  Inject,
  NotFoundException,
  Param,
  Post,
} from '@nestjs/common';
import { Tidemill } from 'tidemill';
import { isEmail, sendEmail } from './jobs.js';

@Controller('emails')
export class EmailsController {
  constructor(@Inject(Tidemill) private readonly mill: Tidemill) {}

  @Post()
  @HttpCode(202)
  async send(@Body() body: unknown): Promise<{ id: string }> {
    if (!isEmail(body)) throw new BadRequestException('The body must have "to" and "subject".');
    const { id } = await this.mill.enqueue(sendEmail, body);
    return { id };
  }

  @Get(':id')
  async get(@Param('id') id: string): Promise<{ status: string; result: unknown }> {
    const job = await this.mill.jobs.get(id);
    if (job?.name !== sendEmail.name) throw new NotFoundException('No such email.');
    return { status: job.status, result: job.result };
  }
}
